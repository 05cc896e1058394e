"""What the shell completes after a verb: names of recipes and of runs, and the files that can stand in their place."""

from __future__ import annotations

from pathlib import Path


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes that come with Etude, and TOML files of the folder that is being typed."""
    from etude.pipeline.recipe.read import shipped_folders

    shipped = {file.stem for folder in shipped_folders() for file in folder.glob("*.toml")}
    return sorted({*(name for name in shipped if name.startswith(incomplete)), *_paths(incomplete, ".toml")})


def complete_run(incomplete: str) -> list[str]:
    """Run directories below runs/ by path and by name, and the folders of the one that is being typed."""
    from etude.cli.status.listing import DEFAULT, run_folders

    found = list(run_folders(DEFAULT)) if DEFAULT.is_dir() else []
    names = {str(path) for path in found} | {str(path.relative_to(DEFAULT)) for path in found}
    return sorted({*(name for name in names if name.startswith(incomplete)), *_paths(incomplete, None)})


def complete_run_path(incomplete: str) -> list[str]:
    """Run directories below runs/ by path, for verbs that take no name."""
    from etude.cli.status.listing import DEFAULT, run_folders

    found = {str(path) for path in run_folders(DEFAULT)} if DEFAULT.is_dir() else set()
    return sorted({*(name for name in found if name.startswith(incomplete)), *_paths(incomplete, None)})


def _paths(incomplete: str, suffix: str | None) -> list[str]:
    """Folders, with a slash, and files with the suffix that begin as typed. Hidden ones only after a dot."""
    head, _, start = incomplete.rpartition("/")
    folder = Path(head or ("/" if incomplete.startswith("/") else "."))
    if not folder.is_dir():
        return []
    prefix = f"{head}/" if "/" in incomplete else ""
    found = []
    for path in folder.iterdir():
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            if path.is_dir():
                found.append(f"{prefix}{path.name}/")
            elif suffix is not None and path.suffix == suffix:
                found.append(f"{prefix}{path.name}")
    return found
