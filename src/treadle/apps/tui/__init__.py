"""The interactive terminal: full screen or line by line, over one conversation.

    render/    the state as lines of text                  frontend       base of the two frontends
    widgets/   the Textual widgets                         app, screen    the full screen
    input/     keys, history, clipboard, drafts            plain          line by line
    vim/       vim keys of the prompt                      questions      asks what the agent asks

The session and the slash commands are apps/conversation.

Imported only when the user starts a terminal.
"""
