"""What generators of tasks without a bug to mend have in common: defects as edits, modules and their tests, drafts and their proof."""
