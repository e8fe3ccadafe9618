"""What the commands may be told, one file for each group of them; what they do is in the package above.

A file here loads nothing that takes time: `ptjob COMMAND --help` answers at once.
"""
