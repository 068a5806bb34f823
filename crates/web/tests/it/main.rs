//! The dashboard over real connections, with a function that answers from memory.
