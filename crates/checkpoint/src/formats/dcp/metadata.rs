//! What `.metadata` says, taken out of its pickle.

use std::collections::BTreeMap;

use trainyard_core::checkpoint::{Dtype, MAX_NAME, Region};

use crate::formats::{
    pickle::{Class, Id, Pickle, Value},
    torch::{count, counts},
    tree::Key,
};

/// What is known of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its parts.
    pub chunks: Vec<Region>,
}

/// Where an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The name of the tensor or object.
    pub name: String,
    /// Where the part begins in its tensor; `None` for an object.
    pub offsets: Option<Vec<u64>>,
    /// The file.
    pub file: String,
    /// Its first byte there.
    pub start: u64,
    /// Its length.
    pub length: u64,
}

/// The metadata of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The tensors by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// The items of tensors and objects.
    pub items: Vec<Item>,
    /// Where each name was in the nested state, where the planner recorded it.
    pub paths: BTreeMap<String, Vec<Key>>,
}

struct Look<'a> {
    pickle: &'a Pickle,
    budget: u64,
}

type Fields<'a> = BTreeMap<&'a str, Id>;

impl Metadata {
    /// Reads the pickle; what is wrong is a sentence.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let pickle = Pickle::read(bytes)?;
        let mut look = Look {
            pickle: &pickle,
            budget: pickle.budget(),
        };
        let root = look.fields(pickle.root(), Class::Metadata)?;
        let mut metadata = Self::default();
        for (name, value) in look.dict(field(&root, "state_dict_metadata")?)? {
            let name = look.name(*name)?;
            match look.pickle.get(*value) {
                Value::Object(Class::BytesStorageMetadata, _) => {}
                Value::Object(Class::TensorStorageMetadata, _) => {
                    let tensor = look.tensor(*value)?;
                    metadata.tensors.insert(name, tensor);
                }
                _ => return Err("an entry is neither a tensor nor bytes".into()),
            }
        }
        let storage = root.get("storage_data").copied();
        for (key, value) in look.dict(storage.ok_or("it names no files")?)? {
            let item = look.item(*key, *value)?;
            metadata.items.push(item);
        }
        if let Some(planner) = root.get("planner_data") {
            // Only a help for nested state: what another planner wrote there is left alone.
            metadata.paths = look.paths(*planner).unwrap_or_default();
        }
        Ok(metadata)
    }
}

fn field(fields: &Fields<'_>, name: &str) -> Result<Id, String> {
    let found = fields.get(name).copied();
    found.ok_or_else(|| format!("the member `{name}` is missing"))
}

impl<'a> Look<'a> {
    fn step(&mut self) -> Result<(), String> {
        Pickle::walk(&mut self.budget)
    }

    fn dict(&mut self, id: Id) -> Result<&'a [(Id, Id)], String> {
        self.step()?;
        match self.pickle.get(id) {
            Value::Dict(pairs) => Ok(pairs),
            _ => Err("a dict is missing".into()),
        }
    }

    /// The members of an object of a class.
    fn fields(&mut self, id: Id, wanted: Class) -> Result<Fields<'a>, String> {
        self.step()?;
        let Value::Object(class, Some(state)) = self.pickle.get(id) else {
            return Err(format!("an object of class {wanted:?} is missing"));
        };
        if *class != wanted {
            return Err(format!("there is a {class:?} where a {wanted:?} should be"));
        }
        let mut fields = BTreeMap::new();
        for (key, value) in self.dict(*state)? {
            self.step()?;
            if let Value::Text(key) = self.pickle.get(*key) {
                fields.insert(key.as_str(), *value);
            }
        }
        Ok(fields)
    }

    fn text(&mut self, id: Id) -> Result<&'a str, String> {
        self.step()?;
        match self.pickle.get(id) {
            Value::Text(text) => Ok(text),
            _ => Err("a text is missing".into()),
        }
    }

    fn name(&mut self, id: Id) -> Result<String, String> {
        let text = self.text(id)?;
        if text.is_empty() || text.len() > MAX_NAME {
            return Err("a name is empty or too long".into());
        }
        Ok(text.to_owned())
    }

    fn tensor(&mut self, id: Id) -> Result<Tensor, String> {
        let fields = self.fields(id, Class::TensorStorageMetadata)?;
        let dtype = self.dtype(field(&fields, "properties")?)?;
        let shape = counts(self.pickle, field(&fields, "size")?)?;
        let Value::List(list) = self.pickle.get(field(&fields, "chunks")?) else {
            return Err("a tensor has no list of parts".into());
        };
        let mut chunks = Vec::new();
        for chunk in list {
            let fields = self.fields(*chunk, Class::ChunkStorageMetadata)?;
            let region = Region {
                offsets: counts(self.pickle, field(&fields, "offsets")?)?,
                sizes: counts(self.pickle, field(&fields, "sizes")?)?,
            };
            if !region.is_in(&shape) {
                return Err("a part of a tensor is not inside it".into());
            }
            chunks.push(region);
        }
        Ok(Tensor {
            dtype,
            shape,
            chunks,
        })
    }

    /// The type is the first member of the properties, which are a tuple or a dict.
    fn dtype(&mut self, id: Id) -> Result<Dtype, String> {
        self.step()?;
        let state = match self.pickle.get(id) {
            Value::Object(Class::TensorProperties, Some(state)) => self.pickle.get(*state),
            _ => return Err("a tensor has no properties".into()),
        };
        let dtype = match state {
            Value::Tuple(parts) => parts.first().copied(),
            Value::Dict(pairs) => pairs
                .iter()
                .take(64)
                .find(|(key, _)| *self.pickle.get(*key) == Value::Text("dtype".into()))
                .map(|(_, value)| *value),
            _ => None,
        };
        match dtype.map(|id| self.pickle.get(id)) {
            Some(Value::Class(Class::Dtype(dtype))) => Ok(*dtype),
            _ => Err("a tensor has no type".into()),
        }
    }

    fn item(&mut self, key: Id, value: Id) -> Result<Item, String> {
        let index = self.fields(key, Class::MetadataIndex)?;
        let info = self.fields(value, Class::StorageInfo)?;
        let offsets = match index.get("offset") {
            Some(id) if *self.pickle.get(*id) != Value::None => Some(counts(self.pickle, *id)?),
            _ => None,
        };
        if let Some(transforms) = info.get("transform_descriptors") {
            match self.pickle.get(*transforms) {
                Value::None => {}
                Value::List(list) | Value::Tuple(list) if list.is_empty() => {}
                _ => return Err("its items are compressed or encrypted".into()),
            }
        }
        Ok(Item {
            name: self.name(field(&index, "fqn")?)?,
            offsets,
            file: self.text(field(&info, "relative_path")?)?.to_owned(),
            start: count(self.pickle, field(&info, "offset")?)?,
            length: count(self.pickle, field(&info, "length")?)?,
        })
    }

    fn paths(&mut self, id: Id) -> Result<BTreeMap<String, Vec<Key>>, String> {
        let mut paths = BTreeMap::new();
        for (name, path) in self.dict(id)? {
            let Value::Tuple(parts) = self.pickle.get(*path) else {
                return Err("a path is not a tuple".into());
            };
            if parts.len() > 32 {
                return Err("a path is too long".into());
            }
            let mut keys = Vec::new();
            for part in parts {
                self.step()?;
                keys.push(match self.pickle.get(*part) {
                    Value::Text(text) => Key::Name(text.clone()),
                    Value::Int(_) => Key::Place(count(self.pickle, *part)?),
                    _ => return Err("a path has something else than names and numbers".into()),
                });
            }
            paths.insert(self.name(*name)?, keys);
        }
        Ok(paths)
    }
}
