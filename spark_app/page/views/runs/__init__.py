"""What the app does and has done."""
