"""What a stage of these tests runs in its process, which then imports nothing of the tests."""

from __future__ import annotations

from etude.pipeline.run.stage import Context


def body(context: Context) -> None:
    (context.folder / "made.json").write_text("x")
    (context.folder / "deep").mkdir(exist_ok=True)
    (context.folder / "deep" / "made.json").write_text("x")
