use std::sync::Mutex;

use trainyard_core::checkpoint::{
    AttemptId, Crc32c, Dtype, Entry, Layout, Policy, Region, StepName, header,
};

use super::*;
use crate::{
    clock::ManualClock,
    faulty::FaultyDisk,
    save::{Image, Limits, Session, State},
};

/// Row `r` of a matrix of 8 rows and 100 columns of bytes has the value `r` everywhere but in column 0.
fn row(row: u64) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(row).unwrap(); 100];
    bytes[0] = 99;
    bytes
}

/// A matrix of 8 rows that two ranks have saved, in chunks of 512 bytes.
fn saved() -> (FaultyDisk, Arc<Store>, CommitRef) {
    let disk = FaultyDisk::new(1);
    let storage = Arc::new(disk.client());
    let store = Arc::new(Store::create(storage, ManualClock::start(), Some("run"), 1).unwrap());
    let id = store.fence(Some(1), "holder", |_| None).unwrap();
    let folder = |session: &Session| session.folder(5);
    let mut last = None;
    for rank in [1_u32, 0] {
        let first = u64::from(rank) * 4;
        let layout = Layout {
            version: 1,
            mesh: Vec::new(),
            tensors: vec![Entry {
                name: "w".into(),
                key: None,
                dtype: Dtype::U8,
                shape: vec![8, 100],
                local: vec![4, 100],
                within: Some(Region {
                    offsets: vec![first, 0],
                    sizes: vec![4, 100],
                }),
                split: Vec::new(),
                file: 0,
                shared: None,
                start: 0,
            }],
            other: serde_json::Map::new(),
        };
        let mut image = header(&layout, &[], 0).unwrap();
        let data = image.len() as u64;
        image.extend((first..first + 4).flat_map(row));
        let session = session(&store, id, rank);
        let state = State {
            images: vec![Image {
                source: Arc::new(image),
                data,
            }],
            layout: Some(layout),
            ..State::default()
        };
        if rank == 1 {
            let folder = folder(&session);
            let piece = session.write_piece(
                &folder,
                &state,
                Duration::from_secs(9),
                &mut crate::save::Progress::default(),
            );
            piece.unwrap();
        } else {
            last = Some(session.save(5, &state).unwrap().commit);
        }
    }
    (disk, store, last.unwrap())
}

fn session(store: &Arc<Store>, id: AttemptId, rank: u32) -> Session {
    Session {
        store: Arc::clone(store),
        clock: ManualClock::start(),
        id,
        rank,
        world: 2,
        limits: Limits {
            chunk_bytes: 512,
            ..Limits::default()
        },
        keep: Policy::default(),
    }
}

fn read(opened: &Opened, wanted: &[([u64; 2], [u64; 2])]) -> Result<Vec<Vec<u8>>, RegionsError> {
    let regions: Vec<WantedRegion> = wanted
        .iter()
        .map(|(offsets, sizes)| WantedRegion {
            tensor: "w".into(),
            region: Region {
                offsets: offsets.to_vec(),
                sizes: sizes.to_vec(),
            },
        })
        .collect();
    let size = |region: &WantedRegion| usize::try_from(region.region.elements().unwrap()).unwrap();
    let buffers = Mutex::new(
        regions
            .iter()
            .map(|region| vec![0; size(region)])
            .collect::<Vec<_>>(),
    );
    opened.read(&regions, None, &|place, offset, bytes| {
        let from = usize::try_from(offset).unwrap();
        buffers.lock().unwrap()[place][from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    })?;
    Ok(buffers.into_inner().unwrap())
}

fn open(store: &Arc<Store>, reference: CommitRef) -> Result<Opened, RegionsError> {
    let clock = ManualClock::start();
    Opened::open(
        Arc::clone(store),
        &*clock,
        reference,
        Duration::from_secs(2),
    )
}

#[test]
fn regions_cross_ranks_and_chunks() {
    let (_disk, store, reference) = saved();
    let opened = open(&store, reference).unwrap();
    let found = read(
        &opened,
        &[([0, 0], [8, 100]), ([3, 50], [2, 3]), ([2, 0], [4, 1])],
    )
    .unwrap();
    assert_eq!(found[0], (0..8).flat_map(row).collect::<Vec<u8>>());
    assert_eq!(found[1], [3, 3, 3, 4, 4, 4]);
    assert_eq!(found[2], [99; 4]);
    let outside = read(&opened, &[([0, 0], [9, 1])]).unwrap_err();
    assert!(
        outside.to_string().contains("is not inside it"),
        "{outside}"
    );
    assert_eq!(opened.objects(7).unwrap(), None);
}

#[test]
fn damage_is_named() {
    let (disk, store, reference) = saved();
    let opened = open(&store, reference.clone()).unwrap();
    let name = data_name(&reference.folder, 1, 0);
    disk.flip(&name, 4096 + 399).unwrap();
    let damaged = read(&opened, &[([0, 0], [8, 100])]).unwrap_err();
    assert!(
        matches!(&damaged, RegionsError::Damaged(why) if why.contains("00001.safetensors` is damaged in chunk 8")),
        "{damaged}"
    );
    // Rows of the other rank are still there.
    assert_eq!(
        read(&opened, &[([0, 0], [4, 100])]).unwrap()[0],
        (0..4).flat_map(row).collect::<Vec<u8>>()
    );
    let other = CommitRef {
        crc32c: Crc32c(reference.crc32c.0 ^ 1),
        ..reference.clone()
    };
    let error = open(&store, other).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is not the file that was committed"),
        "{error}"
    );
    let missing = CommitRef {
        folder: StepName {
            step: 6,
            ..reference.folder
        },
        ..reference
    };
    let error = open(&store, missing).unwrap_err();
    assert!(error.to_string().ends_with("is missing"), "{error}");
}
