//! Tests of the importer, on homes in temporary folders.
