"""The embedded demo model: its phrasebook, training and scores."""
