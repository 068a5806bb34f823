//! Writes `.metadata` so that `torch.distributed.checkpoint.load` reads it.

use trainyard_core::checkpoint::Dtype;

use crate::formats::{pickle::Writer, pickle_dtypes, ranges, tree::Key};

const METADATA: &str = "torch.distributed.checkpoint.metadata";
const FILESYSTEM: &str = "torch.distributed.checkpoint.filesystem";

/// What was written of a name.
#[derive(Clone, Debug)]
pub struct Written {
    /// The name.
    pub name: String,
    /// Type and shape of a tensor, which is one item; `None` for an object.
    pub tensor: Option<(Dtype, Vec<u64>)>,
    /// Where it is in the nested state.
    pub path: Vec<Key>,
    /// Its first byte in the file.
    pub start: u64,
    /// Its length.
    pub length: u64,
}

/// The metadata of one file of items.
#[derive(Debug)]
pub struct MetadataWriter<'a> {
    /// The file.
    pub file: &'a str,
    /// Its items.
    pub items: &'a [Written],
}

impl MetadataWriter<'_> {
    /// The pickle.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Writer::new(4);
        begin(&mut out, METADATA, "Metadata");
        out.text("state_dict_metadata").code(b'}').code(b'(');
        for item in self.items {
            out.text(&item.name);
            if let Some((dtype, shape)) = &item.tensor {
                tensor(&mut out, *dtype, shape);
            } else {
                begin(&mut out, METADATA, "BytesStorageMetadata");
                end(&mut out);
            }
        }
        out.code(b'u');
        out.text("planner_data").code(b'}').code(b'(');
        for item in self.items {
            out.text(&item.name).code(b'(');
            for key in &item.path {
                match key {
                    Key::Name(name) => out.text(name),
                    Key::Place(place) => out.count(*place),
                };
            }
            out.code(b't');
        }
        out.code(b'u');
        out.text("storage_data").code(b'}').code(b'(');
        for item in self.items {
            begin(&mut out, METADATA, "MetadataIndex");
            out.text("fqn").text(&item.name);
            match &item.tensor {
                Some((_, shape)) => {
                    out.text("offset").size(&vec![0; shape.len()]);
                    out.text("index").count(0);
                }
                None => {
                    out.text("index").code(b'N');
                }
            }
            end(&mut out);
            begin(&mut out, FILESYSTEM, "_StorageInfo");
            out.text("relative_path").text(self.file);
            out.text("offset").count(item.start);
            out.text("length").count(item.length);
            end(&mut out);
        }
        out.code(b'u');
        out.text("storage_meta").code(b'N');
        out.text("version").text("1.0.0");
        end(&mut out);
        out.finish()
    }
}

/// An object of a class; its members follow, then [`end`].
fn begin(out: &mut Writer, module: &str, class: &str) {
    out.class(module, class).code(b')').code(0x81);
    out.code(b'}').code(b'(');
}

fn end(out: &mut Writer) {
    out.code(b'u').code(b'b');
}

fn tensor(out: &mut Writer, dtype: Dtype, shape: &[u64]) {
    begin(out, METADATA, "TensorStorageMetadata");
    out.text("properties");
    out.class(METADATA, "TensorProperties")
        .code(b')')
        .code(0x81);
    out.code(b'(').class("torch", pickle_dtypes(dtype).0);
    out.class("torch.serialization", "_get_layout");
    out.text("torch.strided").code(0x85).code(b'R');
    out.boolean(false);
    out.class(METADATA, "_MEM_FORMAT_ENCODING");
    out.count(0).code(0x85).code(b'R');
    out.boolean(false);
    out.counts(&ranges::row_major(shape));
    out.code(b't').code(b'b');
    out.text("size").size(shape);
    out.text("chunks").code(b']');
    begin(out, METADATA, "ChunkStorageMetadata");
    out.text("offsets").size(&vec![0; shape.len()]);
    out.text("sizes").size(shape);
    end(out);
    out.code(b'a');
    end(out);
}
