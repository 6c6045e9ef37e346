"""What the stages hand each other: schemas of records, reports, causes, names, and the errors that end the app."""
