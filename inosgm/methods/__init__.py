"""The methods of the papers, one module each."""
