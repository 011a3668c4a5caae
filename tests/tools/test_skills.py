from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle import Agent
from treadle.core.errors import ConfigError
from treadle.core.transcript import ToolResultItem
from treadle.models import Say, Scripted
from treadle.testing.conformance.source import check_tool_source
from treadle.tools.skills import (
    MAX_SECTION_CHARS,
    Skill,
    Skills,
    find_skills,
    format_skills_section,
    load_skill_text,
    read_skill,
)

GOOD = "---\nname: release\ndescription: Cut a release.\n---\n1. Run scripts/tag.sh\n"


def write(place: Path, text: str = GOOD, name: str = "release") -> Path:
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    return folder


@pytest.fixture
def repo(own_place: Path) -> Path:
    (own_place / "repo").mkdir()
    return own_place / "repo"


@pytest.fixture
def home(own_place: Path) -> Path:
    return own_place / "home"


def test_skills_are_found_in_the_project_and_at_home_and_the_project_comes_first(
    repo: Path, home: Path
):
    write(home / ".treadle/skills")
    write(home / ".treadle/skills", GOOD.replace("release", "mine"), "mine")
    theirs = write(repo / ".claude/skills")
    skills, notes = find_skills(repo, home, trusted=True)
    assert [(skill.name, skill.folder) for skill in skills] == [
        ("mine", home / ".treadle/skills/mine"),
        ("release", theirs),
    ]
    assert notes == []


def test_skills_of_a_folder_wait_for_trust(repo: Path, home: Path):
    write(repo / ".treadle/skills")
    write(repo / ".claude/skills", "nonsense", "other")
    skills, notes = find_skills(repo, home, trusted=False)
    assert skills == []
    assert notes == [f"2 skills of {repo} cannot be used until you trust the folder"]


def test_a_home_that_is_the_folder_needs_no_trust(home: Path):
    write(home / ".treadle/skills")
    assert [skill.name for skill in find_skills(home, home, trusted=False)[0]] == ["release"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\nname: x\n", "the frontmatter has no closing ---"),
        ("---\nname: x\n???\n---\nbody", "line 3"),
        ("---\nname: x\n---\nbody", "the skill is not used: it has no description"),
        ("no head at all", "the skill is not used: it has no description"),
        ("---\ndescription: d\n---\n  \n", "has no text below its frontmatter"),
        ("---\nname: ../../etc\ndescription: d\n---\nbody", "invalid name"),
        ("---\nname: x\ndescription: d\n---\n" + "b" * 300_000, "larger than 256 KiB"),
    ],
)
def test_a_skill_that_is_broken_is_skipped_with_a_sentence(
    repo: Path, home: Path, text: str, words: str
):
    write(repo / ".treadle/skills", text, "bad")
    write(repo / ".treadle/skills")
    skills, notes = find_skills(repo, home, trusted=True)
    assert [skill.name for skill in skills] == ["release"]
    assert len(notes) == 1
    assert words in notes[0]
    assert "bad/SKILL.md" in notes[0]


def test_what_is_no_text_or_no_file_is_skipped(repo: Path, home: Path):
    place = repo / ".treadle/skills"
    (write(place, name="binary") / "SKILL.md").write_bytes(b"\xff\xfe\x00")
    (place / "empty").mkdir()
    os.mkfifo(place / "empty/SKILL.md")
    (place / "nothing").mkdir()
    (place / "README.md").write_text("not a skill")
    skills, notes = find_skills(repo, home, trusted=True)
    assert skills == []
    assert [note.partition(": ")[2] for note in notes] == [
        "not UTF-8 text; save it as such",
        "is a named pipe; it is not read: put a text file in its place, or remove it",
        "not a skill, it has no SKILL.md",
    ]


def test_a_link_out_of_the_folder_is_not_followed(repo: Path, home: Path, own_place: Path):
    place = repo / ".treadle/skills"
    outside = write(own_place / "outside")
    place.mkdir(parents=True)
    (place / "linked").symlink_to(outside)
    (place / "half").mkdir()
    (place / "half/SKILL.md").symlink_to(outside / "SKILL.md")
    inside = write(place)
    (inside / "secret.txt").symlink_to("/etc/passwd")
    (inside / "notes.md").write_text("x")
    skills, notes = find_skills(repo, home, trusted=True)
    assert [skill.folder for skill in skills] == [inside]
    assert all("through a symlink" in note for note in notes)
    assert len(notes) == 2
    text = load_skill_text(skills[0])
    assert str(inside / "notes.md") in text
    assert "secret.txt" not in text


def test_the_prompt_names_them_and_does_not_grow_without_end(repo: Path):
    assert format_skills_section([]) == ""
    one = Skill("release", "Cut a release.", repo, repo)
    section = format_skills_section(
        [one, Skill("hidden", "By hand only.", repo, repo, for_model=False)]
    )
    assert "- release: Cut a release." in section
    assert "hidden" not in section
    many = [Skill(f"s{n}", "d" * 1000, repo, repo) for n in range(100)]
    section = format_skills_section(many)
    assert len(section) < MAX_SECTION_CHARS + 1000
    assert section.endswith("s99")


async def test_a_skill_is_loaded_when_it_is_used(repo: Path, home: Path):
    folder = write(repo / ".treadle/skills")
    (folder / "scripts").mkdir()
    (folder / "scripts/tag.sh").write_text("git tag")
    (folder / ".git").mkdir()
    skills = find_skills(repo, home, trusted=True)[0]
    await check_tool_source(lambda: Skills(skills))
    calls = [("skill", {"name": "Release"}), ("skill", {"name": "relaese"})]
    result = await Agent(Scripted([Say(calls=calls), "done"]), [Skills(skills)]).run("x")
    good, bad = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert good.startswith(f"Skill release, in {folder} ")
    assert "1. Run scripts/tag.sh" in good
    assert good.endswith(f"Files of this skill:\n- {folder}/scripts/tag.sh")
    assert bad == "error: there is no skill 'relaese'; known skills: release"


async def test_a_skill_that_broke_meanwhile_is_an_error_result(repo: Path, home: Path):
    folder = write(repo / ".treadle/skills")
    source = Skills(find_skills(repo, home, trusted=True)[0])
    (folder / "SKILL.md").unlink()
    model = Scripted([Say(calls=[("skill", {"name": "release"})]), "done"])
    result = await Agent(model, [source]).run("x")
    answer = next(item for item in result.transcript if isinstance(item, ToolResultItem))
    assert answer.is_error
    assert "can no longer be used" in answer.text


def test_a_skill_for_people_only_is_not_for_the_model(repo: Path):
    text = GOOD.replace("---\n1", "disable-model-invocation: true\n---\n1")
    skill, body = read_skill(write(repo, text), repo)
    assert (skill.for_model, body) == (False, "1. Run scripts/tag.sh")
    assert Skills([skill]).tools() == ()
    with pytest.raises(ConfigError):
        read_skill(repo, repo)
