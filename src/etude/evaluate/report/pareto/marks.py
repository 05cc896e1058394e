"""Markers that tell policies apart without colour, too: a shape each, filled where the point is on the front."""

from __future__ import annotations

import math

RADIUS = 5.5
HUES = 7  # Okabe and Ito's colours, distinguishable with any colour vision; then shapes alone
SIDES = ((0, 0.0), (4, 45.0), (3, -90.0), (4, 0.0), (3, 90.0), (6, 0.0), (5, -90.0))  # (corners, turn): 0 is a circle


def mark(place: int, x: float, y: float, filled: bool, title: str) -> str:
    """Policy number `place`'s marker; `title` is markup-safe."""
    corners, turn = SIDES[(place + place // HUES) % len(SIDES)]
    kind = f'class="mark{" on" if filled else ""}"'
    title_element = f"<title>{title}</title>"
    if corners == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" {kind}>{title_element}</circle>'
    reach = RADIUS * (1.35 if corners == 3 else 1.2)  # polygons look smaller than a circle of their radius
    angles = [math.radians(turn + 360 * n / corners) for n in range(corners)]
    points = " ".join(f"{x + reach * math.cos(a):.1f},{y + reach * math.sin(a):.1f}" for a in angles)
    return f'<polygon points="{points}" {kind}>{title_element}</polygon>'
