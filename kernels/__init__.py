"""Pure array functions: no files, no pydantic, no logging, no defaults of the domain."""
