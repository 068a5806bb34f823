//! The classes and functions that a pickle of torch may name. A name that is not here ends the reading.

use trainyard_core::checkpoint::Dtype;

/// An allowed class or function. None is ever called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The root of `.metadata`.
    Metadata,
    /// What is known of a tensor.
    TensorStorageMetadata,
    /// An item of bytes.
    BytesStorageMetadata,
    /// Type and layout of a tensor.
    TensorProperties,
    /// A part of a tensor.
    ChunkStorageMetadata,
    /// The key of an item.
    MetadataIndex,
    /// Where an item is.
    StorageInfo,
    /// Who saved.
    StorageMeta,
    /// The memory format, which is not used.
    MemoryFormat,
    /// The layout, which is not used.
    GetLayout,
    /// A shape.
    Size,
    /// A path, which is not used.
    Path,
    /// A type of elements.
    Dtype(Dtype),
    /// A storage whose elements have this type.
    Storage(Dtype),
    /// A storage of bytes.
    UntypedStorage,
    /// A tensor.
    RebuildTensor,
    /// A tensor whose type is its last argument.
    RebuildTensorWithType,
    /// A parameter.
    RebuildParameter,
    /// An ordered dict.
    OrderedDict,
    /// Bytes in protocol 2.
    Encode,
    /// A set in protocol 2.
    Set,
    /// A complex number.
    Complex,
}

/// The types of elements with the names of torch, and with those of its storages.
pub const DTYPES: [(Dtype, &str, &str); 19] = [
    (Dtype::BOOL, "bool", "BoolStorage"),
    (Dtype::U8, "uint8", "ByteStorage"),
    (Dtype::I8, "int8", "CharStorage"),
    (Dtype::F8_E4M3, "float8_e4m3fn", ""),
    (Dtype::F8_E4M3FNUZ, "float8_e4m3fnuz", ""),
    (Dtype::F8_E5M2, "float8_e5m2", ""),
    (Dtype::F8_E5M2FNUZ, "float8_e5m2fnuz", ""),
    (Dtype::F8_E8M0, "float8_e8m0fnu", ""),
    (Dtype::U16, "uint16", ""),
    (Dtype::I16, "int16", "ShortStorage"),
    (Dtype::F16, "float16", "HalfStorage"),
    (Dtype::BF16, "bfloat16", "BFloat16Storage"),
    (Dtype::U32, "uint32", ""),
    (Dtype::I32, "int32", "IntStorage"),
    (Dtype::F32, "float32", "FloatStorage"),
    (Dtype::U64, "uint64", ""),
    (Dtype::I64, "int64", "LongStorage"),
    (Dtype::F64, "float64", "DoubleStorage"),
    (Dtype::C64, "complex64", "ComplexFloatStorage"),
];

impl Class {
    /// The class of a module and a name, or a sentence about it.
    pub fn find(module: &str, name: &str) -> Result<Self, String> {
        let found = match (module, name) {
            ("torch.distributed.checkpoint.metadata", name) => match name {
                "Metadata" => Some(Self::Metadata),
                "TensorStorageMetadata" => Some(Self::TensorStorageMetadata),
                "BytesStorageMetadata" => Some(Self::BytesStorageMetadata),
                "TensorProperties" => Some(Self::TensorProperties),
                "ChunkStorageMetadata" => Some(Self::ChunkStorageMetadata),
                "MetadataIndex" => Some(Self::MetadataIndex),
                "StorageMeta" => Some(Self::StorageMeta),
                "_MEM_FORMAT_ENCODING" => Some(Self::MemoryFormat),
                _ => None,
            },
            // Up to torch 2.2.
            ("torch.distributed._shard.sharded_tensor.metadata", name) => match name {
                "TensorProperties" => Some(Self::TensorProperties),
                "MEM_FORMAT_ENCODING" => Some(Self::MemoryFormat),
                _ => None,
            },
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo") => Some(Self::StorageInfo),
            ("torch.serialization", "_get_layout") => Some(Self::GetLayout),
            ("torch", "Size") => Some(Self::Size),
            ("pathlib" | "pathlib._local", "PosixPath" | "PurePosixPath" | "WindowsPath") => {
                Some(Self::Path)
            }
            ("torch.storage", "UntypedStorage") => Some(Self::UntypedStorage),
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_tensor_v3") => Some(Self::RebuildTensorWithType),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("_codecs", "encode") => Some(Self::Encode),
            ("__builtin__" | "builtins", "set" | "frozenset") => Some(Self::Set),
            ("__builtin__" | "builtins", "complex") => Some(Self::Complex),
            ("torch", name) => DTYPES.iter().find_map(|(dtype, own, storage)| {
                if *own == name {
                    Some(Self::Dtype(*dtype))
                } else {
                    (!storage.is_empty() && *storage == name).then_some(Self::Storage(*dtype))
                }
            }),
            _ => None,
        };
        found.ok_or_else(|| {
            let short = |text: &str| text.chars().take(80).collect::<String>();
            format!(
                "the pickle names `{}.{}`, which is not one of the classes of a checkpoint",
                short(module),
                short(name)
            )
        })
    }
}
