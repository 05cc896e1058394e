"""Goal setter, builder and judge that are models: any policy through the harness, its answers checked, its costs counted."""
