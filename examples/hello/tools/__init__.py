"""The tools of the hello example."""
