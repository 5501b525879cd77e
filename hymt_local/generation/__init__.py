"""One source text -> one judged answer: protect, fit it to the model, generate, restore, check, try in other ways."""
