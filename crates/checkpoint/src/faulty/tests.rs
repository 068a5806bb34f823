use super::*;
use crate::storage::read_small;

fn write(storage: &Faulty, name: &str, body: &[u8]) -> io::Result<()> {
    let file = storage.create(name)?;
    file.write_at(0, body)?;
    file.sync()
}

#[test]
fn power_loss_takes_names_that_were_not_synced() {
    let disk = FaultyDisk::new(1);
    let client = disk.client();
    client.make_folder("f").unwrap();
    client.sync_folder("").unwrap();
    write(&client, "f/kept", b"1").unwrap();
    client.sync_folder("f").unwrap();
    write(&client, "f/lost", b"2").unwrap();
    disk.power_loss(Loss::All);

    assert!(client.list("f").is_err(), "the process is gone");
    let next = disk.client();
    let names: Vec<String> = next
        .list("f")
        .unwrap()
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, ["kept"]);
}

#[test]
fn power_loss_takes_bytes_that_were_not_synced() {
    let disk = FaultyDisk::new(1);
    let client = disk.client();
    let file = client.create("x").unwrap();
    file.write_at(0, &[1; SECTOR]).unwrap();
    file.sync().unwrap();
    file.write_at(SECTOR as u64, &[2; SECTOR]).unwrap();
    client.sync_folder("").unwrap();
    disk.power_loss(Loss::Bytes);
    let left = read_small(&disk.client(), "x", 1 << 20).unwrap();
    assert_eq!(left, [1; SECTOR]);
}

#[test]
fn torn_writes_end_at_sectors() {
    let mut sizes = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let disk = FaultyDisk::new(seed);
        let client = disk.client_with(&[(1, Fault::Kill)]);
        let file = client.create("x").unwrap();
        file.write_at(0, &[1; 3 * SECTOR]).unwrap_err();
        assert!(client.is_dead());
        sizes.insert(read_small(&disk.client(), "x", 1 << 20).unwrap().len());
    }
    assert_eq!(
        sizes.into_iter().collect::<Vec<_>>(),
        [0, SECTOR, 2 * SECTOR, 3 * SECTOR]
    );
}

#[test]
fn planned_errors() {
    let disk = FaultyDisk::new(1);
    let client = disk.client_with(&[
        (0, Fault::NoSpace),
        (1, Fault::Io),
        (2, Fault::DoneButFailed),
    ]);
    assert!(crate::storage::is_full(&client.create("x").unwrap_err()));
    client.create("x").unwrap_err();
    client.create("x").unwrap_err();
    let exists = client.create("x").unwrap_err();
    assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(client.operations(), 4);
}

#[test]
fn capacity_and_removal() {
    let disk = FaultyDisk::new(1);
    disk.limit(Some(1000));
    let client = disk.client();
    write(&client, "a", &[0; 600]).unwrap();
    assert_eq!(client.free().unwrap(), 400);
    let file = client.create("b").unwrap();
    assert!(crate::storage::is_full(&file.reserve(600).unwrap_err()));
    client.remove("a").unwrap();
    file.reserve(600).unwrap();
}

#[test]
fn new_names_become_visible_to_others_in_the_end() {
    let mut late = 0;
    for seed in 0..32 {
        let disk = FaultyDisk::new(seed);
        disk.lag(true);
        let (one, two) = (disk.client(), disk.client());
        write(&one, "x", b"1").unwrap();
        assert!(one.open("x").is_ok(), "own names are visible at once");
        let misses = (0..3).filter(|_| two.open("x").is_err()).count();
        late += usize::from(misses > 0);
        assert!(two.open("x").is_ok());
    }
    assert!(late > 0, "no lookup was ever late");
}
