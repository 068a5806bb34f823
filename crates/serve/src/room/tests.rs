use std::net::Ipv4Addr;

use super::*;

const SIZE: Size = Size {
    connections: 8,
    bytes: 100,
    free_bytes: 10,
    bytes_a_second: 1000,
};

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn room() -> Arc<Room> {
    Room::new(SIZE, "test", Traffic::default())
}

fn enter(room: &Arc<Room>, from: u8) -> Place {
    room.try_enter(address(from)).unwrap()
}

fn is_open(place: &Place) -> bool {
    place.phase().is_some()
}

#[test]
fn the_longest_idle_connection_makes_room() {
    let room = room();
    let places: Vec<Place> = (0..8).map(|from| enter(&room, from)).collect();
    // The first two have just asked; the third is now the oldest.
    places[0].set(Phase::Asking);
    places[1].set(Phase::Idle);
    let another = enter(&room, 9);
    assert!(is_open(&another));
    let open: Vec<bool> = places.iter().map(is_open).collect();
    assert_eq!(open, [true, true, false, true, true, true, true, true]);
    assert_eq!(room.traffic.closed_so_far("test", "room"), 1);
}

#[test]
fn address_above_its_share_loses_connections() {
    let room = room();
    let server = enter(&room, 1);
    let crowd: Vec<Place> = (0..7).map(|_| enter(&room, 2)).collect();
    let another = enter(&room, 3);
    assert!(is_open(&server), "it is the oldest, and alone");
    assert!(!is_open(&crowd[0]));
    assert!(crowd[1..].iter().chain([&another]).all(is_open));
}

#[test]
fn one_address_for_everybody_is_not_limited() {
    let room = room();
    let places: Vec<Place> = (0..8).map(|_| enter(&room, 1)).collect();
    assert!(places.iter().all(is_open));
    let another = enter(&room, 1);
    assert!(is_open(&another) && !is_open(&places[0]));
}

#[tokio::test]
async fn requests_that_are_worked_on_are_never_closed() {
    let room = room();
    let mut places: Vec<Place> = (0..8).map(|from| enter(&room, from)).collect();
    for place in &places {
        place.set(Phase::Working);
    }
    assert!(room.try_enter(address(9)).is_none());
    let waits = room.enter(address(9));
    drop(places.pop());
    assert!(is_open(&waits.await));
    assert!(places.iter().all(is_open));
}

#[test]
fn bytes_beyond_free_ones_are_charged_and_released() {
    let room = room();
    let charged = || room.state().charged;
    let place = enter(&room, 1);
    for (more, want) in [(10, 0), (1, 1), (89, 90), (10, 100)] {
        assert_eq!(place.hold(more), Ok(()));
        assert_eq!(charged(), want);
    }
    assert_eq!(place.hold(1), Err(Full));
    place.set(Phase::Idle);
    assert_eq!(charged(), 0);
    place.hold(50).unwrap();
    place.release();
    assert_eq!(charged(), 0);
    place.hold(50).unwrap();
    drop(place);
    assert_eq!(charged(), 0);
}

#[test]
fn whoever_holds_most_makes_room_for_others() {
    let room = room();
    let glutton: Vec<Place> = (0..3).map(|_| enter(&room, 1)).collect();
    let modest = enter(&room, 2);
    modest.hold(20).unwrap();
    for place in &glutton {
        place.hold(40).unwrap();
    }
    // 10 and three times 30 are charged: the next byte costs the oldest of the address with most.
    let another = enter(&room, 3);
    another.hold(11).unwrap();
    assert!(!is_open(&glutton[0]));
    assert!(is_open(&modest) && is_open(&glutton[1]) && is_open(&glutton[2]));
    assert_eq!(room.state().charged, 71);
}

#[test]
fn nobody_makes_room_for_an_address_that_has_most() {
    let room = room();
    let modest = enter(&room, 2);
    modest.hold(30).unwrap();
    let glutton = enter(&room, 1);
    glutton.hold(90).unwrap();
    assert_eq!(glutton.hold(1), Err(Full));
    assert!(is_open(&modest));
    // A small request needs nothing of it.
    let another = enter(&room, 3);
    assert_eq!(another.hold(10), Ok(()));
}

#[tokio::test]
async fn large_bodies_are_read_at_a_bounded_rate() {
    let room = room();
    let (large, other, small) = (enter(&room, 1), enter(&room, 2), enter(&room, 3));
    let began = Instant::now();
    for place in [&large, &other] {
        place.hold(40).unwrap();
        place.pace(40, Duration::ZERO).await;
    }
    // The second waited for the 40 bytes of the first.
    assert!(began.elapsed() >= Duration::from_millis(40));
    let next = room.state().read_next.unwrap();
    small.hold(10).unwrap();
    small.pace(10, Duration::from_secs(1)).await;
    assert_eq!(room.state().read_next, Some(next), "it has taken no turn");
    // What takes long to read has its next turn later.
    large.pace(1, Duration::from_secs(1)).await;
    let later = room.state().read_next.unwrap();
    assert!(later >= next + Duration::from_secs(4));
}
