"""Running a suite: every policy at every task, as often as asked, within bounds; stopped at any point it goes on from there."""
