//! A campaign over ten thousand clusters, with the limits that the program has without configuration.

use std::time::{Duration, Instant};

use hyperfleet_credentials::actors::deps::Tuning;
use hyperfleet_credentials::registries::scripted::Flavour;
use serde_json::json;

use crate::actors::campaigns::{assert_rotated_once, get, members, plant, start};
use crate::actors::world::{Setting, World};

const CLUSTERS: usize = 10_000;

#[actix_rt::test]
#[ignore = "a measurement: make bench"]
async fn ten_thousand_clusters_are_rotated_once_each() {
    let tuning = Tuning { trust_after: Duration::ZERO, ..Tuning::default() };
    let world = World::start_as(Setting { tuning, ..Setting::new(Flavour::Readable) }).await;
    plant(&world, CLUSTERS).await;
    let began = Instant::now();
    let body = json!({"selector": {"registry": "scripted"}, "canary": 5, "max_in_flight": 200,
        "max_per_minute": 10_000});
    let path = start(&world, &body).await;
    let mut told = Instant::now();
    loop {
        let campaign = get(&world, &path).await;
        if told.elapsed() > Duration::from_secs(15) {
            println!("{:>4} s {}", began.elapsed().as_secs(), campaign["progress"]);
            told = Instant::now();
        }
        match campaign["state"].as_str().unwrap() {
            "running" => tokio::time::sleep(Duration::from_millis(200)).await,
            "completed" => break,
            other => panic!("{other}: {campaign}"),
        }
    }
    let took = began.elapsed();
    let members = members(&world, &path).await;
    assert_eq!(members.len(), CLUSTERS);
    assert_rotated_once(&world, &members).await;
    let most = world.registry.most_at_once();
    assert!(most <= 8, "{most} calls at once");
    println!(
        "{CLUSTERS} clusters in {:.0} s, {:.0} a second, at most {most} calls at once",
        took.as_secs_f64(),
        10_000.0 / took.as_secs_f64()
    );
}
