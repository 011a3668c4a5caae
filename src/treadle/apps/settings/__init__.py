"""What the files of the user and of a project say: settings, rules, trust, extensions, commands.

    settings     the table of settings           load           their values, with their origins
    writer       writes one into the file        changes        `/config NAME VALUE`
    rules        permission rules and trust      rule_changes   `/permissions add|remove`
    extensions   hooks, MCP servers, skills      command_files  custom slash commands

Used by apps/assembly and by the hosts. Not what runs: that is built in apps/assembly.
"""
