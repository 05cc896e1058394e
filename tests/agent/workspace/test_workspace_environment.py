"""No key of the person's is in a command's environment: by its name, by the policy's setting, or by its value."""

import os
from pathlib import Path

import pytest

from etude.agent.workspace.environment import NO_TERMINAL, without_keys
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.workspace import Workspace

KEPT = {
    "GIT_AUTHOR_NAME": "a", "TOKENIZERS_PARALLELISM": "false",
    "PATH": "/bin", "HOME": "/home/a", "PWD": "/x", "OLDPWD": "/y", "LANG": "C.UTF-8", "XAUTHORITY": "/x", "CI": "1", "PATH_INFO": "p",
}  # fmt: skip
SECRETS = (
    "OPENAI_API_KEY", "openai_api_key", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "MYSQL_PWD", "GITHUB_PAT", "NPM_CONFIG__AUTH",
    "GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "AZURE_BEARER", "GPG_PASSPHRASE",
)  # fmt: skip


def test_variables_that_are_called_like_secrets_are_left_out_and_others_kept():
    assert without_keys({**KEPT, **dict.fromkeys(SECRETS, "hidden")}) == KEPT


def test_the_variable_of_the_models_key_is_left_out_whatever_it_is_called_and_so_are_copies():
    environ = {**KEPT, "MY_LLM": "sk-made-up-123\n", "HEADERS": "Authorization: Bearer sk-made-up-123", "SHORT": "none"}
    assert without_keys(environ, ["MY_LLM", "NOT_SET"]) == {**KEPT, "SHORT": "none"}
    assert without_keys({**KEPT, "EMPTY": "", "LLM": "no"}, ["EMPTY", "LLM"]) == KEPT
    assert without_keys({**KEPT, "LLM": " " * 8}, ["LLM"]) == KEPT, "blanks are no key, and every value holds no key"


async def test_a_folder_gives_no_key_to_its_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MADE_UP_API_KEY", "made-up-secret-value")
    folder = LocalFolder(tmp_path)
    for argv in (["env"], "env", ["python", "-c", "import os; print(os.environ)"]):
        assert b"made-up-secret-value" not in (await folder.run(argv, warm=True)).out
    await folder.kill()


async def test_of_two_edits_within_a_second_a_command_runs_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    folder = LocalFolder(tmp_path)
    for text in (b"print('one')\n", b"print('two')\n"):
        await folder.write("module.py", text)
        os.utime(tmp_path / "module.py", (1_700_000_000, 1_700_000_000))
        done = await folder.run("python3 -c 'import module'")
        assert done.out == text[7:10] + b"\n", done
    assert sorted(path.name for path in tmp_path.iterdir()) == ["module.py"]
    await folder.kill()


def test_no_setting_of_ours_needs_more_than_a_shell():
    assert all("\n" not in value and len(value) < 300 for value in NO_TERMINAL.values())


async def test_a_plain_command_line_of_any_length_runs(tmp_path: Path):
    workspace = Workspace(LocalFolder(tmp_path))
    line = f"cat > big <<'EOF'\n{'é' * 100_000}\nEOF\nwc -c < big; cat; exit 3"
    done = await workspace.run(line, timeout_s=20, max_output_bytes=1000)
    assert (done.rc, done.out.strip(), done.err) == (3, b"200001", b"")
