"""The SQLite file: migrations, the phrase cache, the history."""
