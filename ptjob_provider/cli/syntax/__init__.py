"""Options and arguments of the commands, one file per group; the package above implements the commands.

A file here imports nothing that takes time, so `ptjob COMMAND --help` responds at once.
"""
