"""Verbs with many options: --help shows the few that people type, and a settings file, --set or the option itself sets the others.

    etude bench run --print-config > mine.toml        every setting with its description, type and value
    etude bench run --config mine.toml --set passes=3 --dry-run

Promise: an option on the command line counts before --set, --set before the file, the file before the default. A wrong setting ends the
command before anything is started or written.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from etude.cli.settings_file import format_settings, is_list, keys, read_settings, read_word

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings of this command.")
]
Words = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one setting, e.g. seed=3; repeatable.")
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print every setting with its value as a TOML file, do nothing.")
]
SET_HELP = "Set one setting, e.g. seed=3, or one key of the recipe, e.g. bench.resamples=2000; repeatable."
# Options that say what this call does, and are no settings of it.
NO_SETTINGS = ("config", "print_config", "json", "dry_run", "help")


def settings_command(*shown: str) -> type[TyperCommand]:
    """The command class of a verb of which --help shows these options. The others work, hidden."""
    return type("SettingsCommand", (SettingsCommand,), {"shown": frozenset(shown)})


class SettingsCommand(TyperCommand):
    """Use it by `settings_command`. `settings`: by key every parameter that a file or --set can give."""

    shown: frozenset[str] = frozenset()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._own_words = next((one for one in self.params if "--set" in one.opts), None)
        for option in self.params:
            if option.param_type_name == "option" and max(option.opts, key=len) not in {
                *self.shown,
                "--set",
                "--json",
                "--dry-run",
            }:
                option.hidden = True  # type: ignore[attr-defined]
        for extra in _extra_options():
            if self._own_words is None or "--set" not in extra.opts:
                extra.expose_value = False
                self.params.append(extra)
        self._config: Any = next(one for one in self.params if "--config" in one.opts)
        if self._own_words is not None:
            self._own_words.help = SET_HELP  # type: ignore[attr-defined]
        self.settings = keys(self.params, NO_SETTINGS if self._own_words is not None else (*NO_SETTINGS, "set"))
        self.more = sum(getattr(one, "hidden", False) for one in self.settings.values())

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.epilog = (
            f"{self.more} more settings: see `{ctx.command_path} --print-config`, and set them with --config or --set."
        )
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if given.get("help"):
            return super().parse_args(ctx, args)
        values, recipe_words = self._values(ctx, given)
        if given.get("print_config"):
            if given.get("json"):
                raise typer.BadParameter("--print-config prints a TOML file: leave out --json")
            typer.echo(self._print(ctx, given, values, recipe_words))
            raise typer.Exit
        ctx.default_map = {self.settings[key].name: value for key, value in values.items()}
        rest = super().parse_args(ctx, self._with_arguments(args, given, values))
        if self._own_words is not None:
            ctx.params[self._own_words.name] = recipe_words or None
        return rest

    def _values(self, ctx: Any, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """By key what file and --set give, and the words for the recipe, of which the last one counts."""
        path = None if given.get("config") is None else self._config.process_value(ctx, given["config"])
        values = {} if path is None else self._checked(ctx, f"--config {path}", read_settings(path, self.settings))
        recipe_words: list[str] = list(values.pop("set", []))
        for word in given.get(self._own_words.name if self._own_words is not None else "set_", None) or []:
            if self._own_words is not None and "." in word.partition("=")[0]:
                recipe_words.append(word)
                continue
            key, value = read_word(word, {k: one for k, one in self.settings.items() if k != "set"})
            values |= self._checked(ctx, f"--set {word}", {key: value})
        return values, recipe_words

    def _checked(self, ctx: Any, place: str, values: dict[str, Any]) -> dict[str, Any]:
        """The values, each within its limits. Raises BadParameter with the place."""
        for key, value in values.items():
            try:
                self.settings[key].process_value(ctx, value)
            except typer.BadParameter as error:
                raise typer.BadParameter(f"{place}: {key} = {value!r}: {error.message}") from None
        return values

    def _with_arguments(self, args: list[str], given: dict[str, Any], values: dict[str, Any]) -> list[str]:
        """The command line, with the arguments that only the file or --set gives behind it."""
        missing: list[str] = []
        for key, parameter in self.settings.items():
            if parameter.param_type_name == "argument" and key in values and not given.get(parameter.name):
                missing += [str(one) for one in (values[key] if is_list(parameter) else [values[key]])]
        return [*args, *([] if "--" in args or not missing else ["--"]), *missing]

    def _print(self, ctx: Any, given: dict[str, Any], values: dict[str, Any], recipe_words: list[str]) -> str:
        current: dict[str, Any] = {}
        for key, parameter in self.settings.items():
            value = given.get(parameter.name)
            if value is None or value == ():
                value = values.get(key, parameter.get_default(ctx))
            if value is not None:
                value = parameter.process_value(ctx, value)
            formats = getattr(parameter.type_descriptor.parameter_info, "formats", None)
            current[key] = value.strftime(formats[0]) if isinstance(value, datetime) and formats else value
        if self._own_words is not None:
            current["set"] = recipe_words or None
        title = f"Settings of `{ctx.command_path}`. Use this file with --config FILE."
        return format_settings(title, current, {key: _described(ctx, one) for key, one in self.settings.items()})


def _described(ctx: Any, parameter: Any) -> str:
    """`Attempts at each task. Type: int, at least 1.`"""
    if "--set" in parameter.opts:
        return "Keys of the recipe, e.g. bench.resamples=2000. Type: list[str]."
    words = [parameter.display_type(ctx).strip("<>").removesuffix(" range")]
    info = parameter.type_descriptor.parameter_info
    words += [f"at least {info.min}"] if getattr(info, "min", None) is not None else []
    words += [f"at most {info.max}"] if getattr(info, "max", None) is not None else []
    words += ["required"] if parameter.required else []
    return f"{' '.join(parameter.help.split())} Type: {', '.join(words)}."


def _extra_options() -> list[Any]:
    """--config, --set and --print-config, made for each command."""
    lone = typer.Typer(add_completion=False)

    @lone.command()
    def options(config: ConfigFile = None, set_: Words = None, print_config: PrintConfig = False) -> None:
        """Their declaration."""

    return list(typer.main.get_command(lone).params)
