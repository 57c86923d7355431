//! Settings files of MCP clients.

/// An edit of a settings file is refused, or keeps everything but the servers it removes.
pub fn client_settings(input: &[u8]) {
    callgate_importer::fuzzing::replaced_servers(input);
}
