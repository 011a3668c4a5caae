"""Sessions of other agents, read from their transcripts and written as sessions of ours.

    foreign_session    a transcript as a value: messages, replies, results, and what was not read
    claude_transcript  reads those of Claude Code        codex_rollout   reads those of Codex
    import_session     writes one as a session: start here

Nothing of a transcript is executed, and the files are only read.
"""
