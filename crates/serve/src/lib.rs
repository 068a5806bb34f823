//! A bounded HTTP server.
