"""The settings of a Django application's tests: those that its tree holds, or plain ones where its release left them out. Read as data.

Django's tests run under a settings module. Projects name it in pytest's configuration or set it in a program of their own (`runtests.py`,
`manage.py`); of the latter pytest learns nothing.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS
from etude.tasks.generate.install.rules.python_layout import modules, root, tests

PLUGIN = "pytest-django"
VARIABLE = "DJANGO_SETTINGS_MODULE"
PLACE, PLAIN = f"{DEPS}/django", "plain_settings"  # folder and module of settings for projects without any
_IMPORT = re.compile(r"(?m)^[^\S\n]*+(?:from|import)\s+django\b")
_CONFIGURED = re.compile(rf"{VARIABLE}|settings\.configure\(")
_SETTINGS = re.compile(r"(^|/)(test_?settings|settings_?tests?|settings)(/(__init__|tests?|testing))?\.py$")
_CONFIG = ("pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini")
_CONTRIB = ("admin", "auth", "contenttypes", "messages", "sessions", "sites", "staticfiles")


def needs_settings(files: Mapping[str, str]) -> bool:
    """Whether its tests import Django, and neither its configuration of pytest nor a test names the settings."""
    own = tests(files)
    if not any(_IMPORT.search(files[path]) for path in own):
        return False
    spoken = [*_CONFIG, *own, *(path for path in files if posixpath.basename(path) == "conftest.py")]
    return not any(_CONFIGURED.search(files.get(path, "")) for path in spoken)


def env(files: Mapping[str, str]) -> dict[str, str]:
    """The settings module, and where it is imported from; nothing for a project that needs none of us."""
    if not needs_settings(files):
        return {}
    folder, module = _found(files) or (PLACE, PLAIN)
    return {VARIABLE: module, "PYTHONPATH": folder}


def steps(files: Mapping[str, str]) -> list[str]:
    """What writes plain settings where the tree holds none."""
    if not needs_settings(files) or _found(files) is not None:
        return []
    apps = [f"django.contrib.{name}" for name in _CONTRIB]
    apps += [name for name in modules(files) if _is_application(name, files)]
    urls = next((f"{name}.urls" for name in modules(files) if _file(name, "urls.py", files)), PLAIN)
    lines = [
        "SECRET_KEY = 'of tests'",
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}",
        f"INSTALLED_APPS = {apps!r}",
        f"ROOT_URLCONF = {urls!r}",
        "urlpatterns = []",
        "SITE_ID = 1",
        "USE_TZ = True",
        "DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'",
        "MIDDLEWARE = ['django.contrib.sessions.middleware.SessionMiddleware', "
        "'django.contrib.auth.middleware.AuthenticationMiddleware', 'django.contrib.messages.middleware.MessageMiddleware']",
        "TEMPLATES = [{'BACKEND': 'django.template.backends.django.DjangoTemplates', 'APP_DIRS': True, 'OPTIONS': {"
        "'context_processors': ['django.template.context_processors.request', 'django.contrib.auth.context_processors.auth', "
        "'django.contrib.messages.context_processors.messages']}}]",
        "STATIC_URL = '/static/'",
    ]
    text = "\n".join(lines) + "\n"
    return [f"mkdir -p {PLACE} && printf %s {shlex.quote(text)} > {PLACE}/{PLAIN}.py"]


def _found(files: Mapping[str, str]) -> tuple[str, str] | None:
    """(folder to import from, module) of the tree's own settings, those for tests first."""
    there = [
        path for path in files if _SETTINGS.search(path) and re.search(r"(?m)^[^\S\n]*+INSTALLED_APPS\b", files[path])
    ]
    if not there:
        return None
    path = min(there, key=lambda one: ("test" not in one, one.count("/"), one))
    folder, name = posixpath.split(path[:-3].removesuffix("/__init__"))
    names = [name]
    while folder and f"{folder}/__init__.py" in files:
        folder, last = posixpath.split(folder)
        names.insert(0, last)
    return f"{WORKDIR}/{folder}".rstrip("/"), ".".join(names)


def _is_application(name: str, files: Mapping[str, str]) -> bool:
    return any(_file(name, one, files) for one in ("apps.py", "models.py", "migrations/__init__.py"))


def _file(name: str, inside: str, files: Mapping[str, str]) -> bool:
    return f"{root(files)}/{name}/{inside}".lstrip("/") in files
