//! Cases that the simulation found, each told as short as it can be.

use super::*;

#[test]
fn a_success_outside_the_wanted_slots_is_none_inside() {
    let mut world = World::new(with_roles(job(Kind::Paddle), &[(Role::Worker, 4)]));
    world.run_all();
    world.exit(worker(2), 0);
    world.settle();
    world.job = with_roles(world.job, &[(Role::Worker, 1)]);
    world.pass();
    assert_ne!(world.state(), "Succeeded", "worker 0 has not ended");
}
