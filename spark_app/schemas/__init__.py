"""What a schema id means: asked of the registry once, compiled once, remembered for ever."""
