"""Where records come from: `kafka`, `files`, and bronze."""
