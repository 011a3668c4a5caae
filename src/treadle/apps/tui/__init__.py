"""The terminal for people: a screen that shows the work, and takes a word at any moment.

    view      what is seen, a pure function of events     scene, blocks, shelf, prose   its values
    recall    the same for a session that is resumed      painting, markdown, diffs     its looks
    conversation   one driver at work, for any face       host, wired   what the app needs of below
    app       the full screen                             plain         the same, line by line

Nothing here is imported before somebody wants a terminal.
"""
