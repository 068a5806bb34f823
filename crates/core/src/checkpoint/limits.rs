//! Bounds of what is written and of what is read. A file beyond one is refused, and so is a store whose commits together are beyond
//! [`MAX_VIEW_BYTES`], so that a hostile or damaged store takes a bounded amount of memory.

/// The size of a chunk that has a checksum of its own.
pub const CHUNK_BYTES: u64 = 16 << 20;
/// The most ranks of a commit.
pub const MAX_WORLD: u32 = 1 << 17;
/// The most files of one rank.
pub const MAX_FILES: usize = 256;
/// The most bytes of one file. Writers start the next file at 64 GiB.
pub const MAX_FILE_BYTES: u64 = 1 << 40;
/// The most chunks of one file.
pub const MAX_CHUNKS: u64 = 1 << 16;
/// The most commits that a record acknowledges.
pub const MAX_ACKNOWLEDGED: usize = 16_384;
/// The most layouts of a commit.
pub const MAX_LAYOUTS: usize = 1 << 17;
/// The most shared files of a commit.
pub const MAX_SHARED: usize = 65_536;
/// The most axes of a mesh.
pub const MAX_AXES: usize = 16;
/// The most dimensions of a tensor.
pub const MAX_DIMS: usize = 32;
/// The most entries of a layout.
pub const MAX_TENSORS: usize = 1 << 20;
/// The most bytes of the name of a tensor.
pub const MAX_NAME: usize = 4_096;
/// The most bytes of a text for people, such as who holds a fence.
pub const MAX_TEXT: usize = 512;
/// Reads nearer than this to each other become one.
pub const JOIN_BYTES: u64 = 1 << 20;
/// The most bytes of all `COMMIT.json` of a store together, which a reader holds at once. A commit of 1,024 ranks has about 200 KiB.
pub const MAX_VIEW_BYTES: u64 = 2 << 30;
/// The most bytes of one read.
pub const READ_BYTES: u64 = 32 << 20;
