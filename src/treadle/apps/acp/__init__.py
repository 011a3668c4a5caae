"""The agent in an editor: `treadle acp` speaks the Agent Client Protocol over stdin and stdout.

    main         starts the connection         agent      the methods of the protocol
    transport    lines of JSON, also bad ones  session    one session: prompt, cancel, settings
    updates      events as session updates     tool_calls calls: kinds, titles, diffs, locations
    questions    approvals and questions       prompt     content blocks as a message
    workspace    files through the editor      terminals  commands in the editor's terminals
    commands     the slash commands            servers    MCP servers that the editor brings
    outbox       updates in their order        settings_options   modes and models to choose from

Like the terminal it runs a LocalHost (conversation/local_host.py) and has no loop of its own. Imported
only by `treadle acp`; the SDK is the extra `acp`.
"""
