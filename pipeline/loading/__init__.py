"""Makes settings of files and options, or says what is wrong with these, and which is."""
