"""Models in GGUF files: read as if they were model folders, and saved as ordinary ones.

`container` reads the file, `architecture` makes its config and names, `vocabulary` its tokenizer. Needs
``pip install 'posttrain[gguf]'``.
"""
