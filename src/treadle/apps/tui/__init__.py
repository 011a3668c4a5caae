"""The interactive terminal: full screen or line by line, over one conversation.

    state/     what is shown, a pure function of events    conversation   runs one driver
    render/    the state as lines of text                  commands       the slash commands
    widgets/   the Textual widgets                         frontend       base of the two frontends
    input/     keys, completion, history, clipboard        app, screen    the full screen
    host       what the frontends need; local_host is it   plain          line by line

Imported only when the user starts a terminal.
"""
