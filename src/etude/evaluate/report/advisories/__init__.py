"""What a run's own figures warn of: rules over its files, each pure, with evidence and what to do."""
