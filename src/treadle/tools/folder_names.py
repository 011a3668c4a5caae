"""The folders in which skills and commands are looked for, in a home and in a project. Only names.

Used by skills.py and by the settings of the agent.
"""

SKILL_FOLDERS = (".treadle/skills", ".claude/skills")
PROJECT_SKILL_FOLDERS = (*SKILL_FOLDERS, ".agents/skills", ".codex/skills", ".cursor/skills")
COMMAND_FOLDERS = (".treadle/commands", ".claude/commands")
PROJECT_COMMAND_FOLDERS = (*COMMAND_FOLDERS, ".cursor/commands")
