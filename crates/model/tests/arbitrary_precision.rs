//! The closed formulas of Zhang, section 4.1, in arithmetic of 400 bits, against the paths: ten digits and more, to scores
//! far beyond 60.

use dashu_float::FBig;
use dashu_float::round::mode::HalfEven;
use proptest::prelude::*;
use rotproof_model::{
    Arrival, BLOCK_BITS, BitErrors, Goal, Path, Probability, Uncertain, systems, systems::Configuration,
};

type Big = FBig<HalfEven, 2>;

const BITS: usize = 400;

fn big(number: f64) -> Big {
    Big::try_from(number).expect("a finite number").with_precision(BITS).value()
}

fn b() -> Big {
    big(f64::from(BLOCK_BITS))
}

fn factorial(count: u32) -> Big {
    (1..=count).fold(big(1.0), |product, factor| product * big(f64::from(factor)))
}

fn power(base: &Big, count: u32) -> Big {
    (0..count).fold(big(1.0), |product, _| product * base)
}

/// C(b, i) u^i (1 - u)^(b - i).
fn disk(u: f64, count: u32) -> Big {
    let choose =
        (0..count).fold(big(1.0), |product, i| product * (b() - big(f64::from(i)))) / factorial(count);
    let rest = ((b() - big(f64::from(count))) * (big(1.0) - big(u)).ln()).exp();
    choose * power(&big(u), count) * rest
}

/// e^(-b l t) (b l t)^i / i!.
fn memory(l: f64, count: u32, t: f64) -> Big {
    let mean = b() * big(l) * big(t);
    (-mean.clone()).exp() * power(&mean, count) / factorial(count)
}

/// The sum over i >= 1.
fn any(none: Big) -> Big {
    big(1.0) - none
}

fn xor() -> Big {
    (b() - big(64.0)) / (big(64.0) * (b() - big(1.0)))
}

fn fletcher() -> Big {
    big(4.16e-20)
}

/// Ten digits of the probability itself: 1e-10 of its logarithm is not enough.
fn assert_same(found: Probability, wanted: &Big) -> Result<(), TestCaseError> {
    let wanted = wanted.ln().to_f64().value();
    prop_assert!((found.ln() - wanted).abs() < 1e-10, "{} instead of {wanted}", found.ln());
    Ok(())
}

/// What the formula of each system says, for residencies at which less than one error per block is to be expected.
fn closed(system: &str, l: f64, u: f64, t: f64) -> Big {
    let (nothing_on_disk, nothing_after) = (disk(u, 0), |t| memory(l, 0, t));
    let mem_xor = |t| memory(l, 2, t) * xor();
    let mem_fletcher = |t| memory(l, 3, t) * fletcher();
    let dsk_xor = || disk(u, 2) * xor();
    let dsk_fletcher = || disk(u, 3) * fletcher();
    let dsk_both = || if dsk_xor() < dsk_fletcher() { dsk_xor() } else { dsk_fletcher() };
    let before = || mem_xor(t) + dsk_both() + mem_xor(30.0);
    let after = || mem_fletcher(t) + dsk_fletcher() + mem_xor(30.0);
    match system {
        "nc" => any(nothing_after(t)) + any(nothing_on_disk) + any(nothing_after(30.0)),
        "zfs" => any(nothing_after(t)) + dsk_fletcher() + any(nothing_after(30.0)),
        "e2e-xor" => mem_xor(t) + dsk_xor() + mem_xor(30.0),
        "e2e-fletcher" => mem_fletcher(t) + dsk_fletcher() + mem_fletcher(30.0),
        "z2-static" => before(),
        "z2-dynamic" => {
            let goal = big(4096.0) / power(&big(2.0), 70);
            if before() <= goal { before() } else { after() }
        }
        other => panic!("no system {other}"),
    }
}

fn found(system: &str, l: f64, u: f64, t: f64) -> Probability {
    let path: Path = systems::from_word(system, Goal::zettabyte()).expect("a system");
    path.on(Uncertain::exact(l), Uncertain::exact(u)).undetected(t)
}

#[test]
fn every_system_is_its_closed_formula_on_every_machine() {
    for word in Configuration::WORDS {
        let machine = Configuration::from_word(word).expect("a machine");
        let (l, u) = (machine.memory.value(), machine.disk.value());
        for system in systems::WORDS {
            for t in [0.001, 1.0, 30.0, 92.0, 93.0, 3600.0, 1e6] {
                assert_same(found(system, l, u, t), &closed(system, l, u, t))
                    .unwrap_or_else(|why| panic!("{system} on {word} after {t} s: {why}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_system_is_its_closed_formula_at_any_rate(
        memory_index in 10.0f64..40.0, disk_index in 6.0f64..40.0, t_exponent in -3.0f64..4.0,
        number in 0..systems::WORDS.len(),
    ) {
        let (l, u, t) = (10f64.powf(-memory_index), 10f64.powf(-disk_index), 10f64.powf(t_exponent));
        let system = systems::WORDS[number];
        let wanted = closed(system, l, u, t);
        assert_same(found(system, l, u, t), &wanted)?;
    }

    #[test]
    fn the_laws_of_errors_are_exact_at_any_rate(
        exponent in -60.0f64..0.4, count in 1u32..8, continuation in 0.0f64..0.99, shape_exponent in -3.0f64..3.0,
    ) {
        let mean = 10f64.powf(exponent);
        let shape = 10f64.powf(shape_exponent);
        let law = |arrival| BitErrors::Arrivals { mean, arrival };
        let poisson = |mean: &Big, count| (-mean.clone()).exp() * power(mean, count) / factorial(count);
        assert_same(law(Arrival::Independent).exactly(count), &poisson(&big(mean), count))?;

        // Pólya-Aeppli: k bursts, their lengths geometric.
        let p = big(continuation);
        let bursts = big(mean) * (big(1.0) - &p);
        let choose = |n: u32, k: u32| factorial(n) / (factorial(k) * factorial(n - k));
        let wanted = (1..=count)
            .map(|k| poisson(&bursts, k) * choose(count - 1, k - 1) * power(&(big(1.0) - &p), k) * power(&p, count - k))
            .fold(big(0.0), |sum, part| sum + part);
        assert_same(law(Arrival::Bursts { continuation }).exactly(count), &wanted)?;
        assert_same(law(Arrival::Bursts { continuation }).any(), &any((-bursts).exp()))?;

        // Negative binomial: r (r + 1) ... (r + n - 1) / n! (r / (r + m))^r (m / (r + m))^n.
        let (r, m) = (big(shape), big(mean));
        let rising = (0..count).fold(big(1.0), |product, k| product * (&r + big(f64::from(k))));
        let none = (r.clone() * (&r / (&r + &m)).ln()).exp();
        let wanted = rising / factorial(count) * none.clone() * power(&(&m / (&r + &m)), count);
        let clustered = law(Arrival::Clustered { shape });
        assert_same(clustered.exactly(count), &wanted)?;
        assert_same(clustered.any(), &any(none))?;

        let u = mean / f64::from(BLOCK_BITS);
        assert_same(BitErrors::Binomial { rate: u }.exactly(count), &disk(u, count))?;
        assert_same(BitErrors::Binomial { rate: u }.any(), &any(disk(u, 0)))?;
    }

    #[test]
    fn complements_repetitions_and_sums_are_exact(
        a_exponent in -70.0f64..-0.01, b_exponent in -70.0f64..-0.01, times in 1u32..1_000_000,
    ) {
        let (x, y) = (10f64.powf(a_exponent), 10f64.powf(b_exponent));
        let p = |value| Probability::new(value).expect("a probability");
        assert_same(p(x).complement().complement(), &big(x))?;
        let once = any((big(f64::from(times)) * (big(1.0) - big(x)).ln()).exp());
        assert_same(p(x).at_least_once(f64::from(times)), &once)?;
        if x + y <= 1.0 {
            assert_same(p(x).plus(p(y)), &(big(x) + big(y)))?;
        }
    }
}
