"""The agent in an editor: `treadle acp` speaks the Agent Client Protocol over stdin and stdout.

    main            starts the connection         agent         the methods of the protocol
    transport       lines of JSON, also bad ones  session       one session: prompt, cancel
    updates         events as session updates     tool_calls    calls: kinds, titles, diffs
    outbox          updates in their order        prompt        content blocks as a message
    questions       approvals and questions       commands      the slash commands
    session_options modes, models, thinking       servers       MCP servers that the editor brings
    workspace       files through the editor      editor_files, terminals   the editor's side of it

Like the terminal it runs a LocalHost (apps/conversation) and has no loop of its own. Imported only
by `treadle acp`; the SDK is the extra `acp`.
"""
