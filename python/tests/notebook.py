"""Executes a notebook in a temporary folder, and fails if a cell fails."""

import sys
import tempfile

import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
with tempfile.TemporaryDirectory() as folder:
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
