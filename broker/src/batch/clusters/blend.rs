//! The blend of rows that bounds best: parts of several rows together are a row as well, and say more than each of them.
//!
//! Each gang takes the mode that needs least by the blend, so that the best blend is the solution of a game, found by multiplicative
//! weights (Arora, Hazan, Kale 2012). Invariant: floating point only steers; a blend is made of whole parts of whole shares, rounded so
//! that it claims less.

use super::{
    bounds::{Row, WHOLE},
    modes::Modes,
};

/// Most rounds of the game, and how often in a row nothing may be gained.
const ROUNDS: (u32, u32) = (400, 60);
/// How much the best row gains in a round, at first.
const STRIDE: f64 = 4.0;
/// Rows with less than this part are left out of a round.
const TINY: f64 = 1e-6;

/// A row of parts of all rows, whose bound for these gangs is nearly the best; without areas.
pub(super) fn blend(rows: &[Row], modes: &[Modes], gangs: &[usize]) -> Row {
    let parts = parts(rows, modes, gangs);
    let used = || rows.iter().zip(&parts).filter(|(_, part)| **part > 0);
    let shares = |gang: usize| {
        let mut shares = vec![0; modes[gang].all.len()];
        for (row, part) in used() {
            shares.iter_mut().zip(&row.shares[gang]).for_each(|(share, own)| *share += part * own);
        }
        shares.into_iter().map(|share| share / WHOLE).collect()
    };
    let steps = rows.first().map_or(0, |row| row.free.len());
    let free = |at: usize| used().map(|(row, part)| part * row.free[at]).sum::<i64>() / WHOLE + 1;
    Row { shares: (0..modes.len()).map(shares).collect(), free: (0..steps).map(free).collect(), areas: Vec::new() }
}

/// The parts of the rows, in parts of [`WHOLE`] and no more than that together.
fn parts(rows: &[Row], modes: &[Modes], gangs: &[usize]) -> Vec<i64> {
    let mut weights = vec![1.0 / rows.len() as f64; rows.len()];
    let (mut best, mut in_vain) = ((0.0, weights.clone()), 0);
    for round in 0..ROUNDS.0 {
        let (value, gains) = answer(rows, modes, gangs, &weights);
        in_vain += 1;
        if value > best.0 {
            in_vain = if value > best.0 * 1.0002 { 0 } else { in_vain };
            best = (value, weights.clone());
        }
        if in_vain > ROUNDS.1 {
            break;
        }
        let most = gains.iter().copied().fold(1.0, f64::max);
        let stride = STRIDE / f64::from(round + 8).sqrt();
        for (weight, gain) in weights.iter_mut().zip(&gains) {
            *weight *= (1.0 + stride * (gain - value) / most).max(0.5);
        }
        let all: f64 = weights.iter().sum();
        // What is nearly nothing may come back.
        weights.iter_mut().for_each(|weight| *weight = (*weight / all).max(TINY / 100.0));
    }
    let all: f64 = best.1.iter().sum();
    best.1.iter().map(|weight| (weight / all * WHOLE as f64) as i64).collect()
}

/// What the gangs need together by this blend when each takes the mode that needs least, and what these modes need by each row.
fn answer(rows: &[Row], modes: &[Modes], gangs: &[usize], weights: &[f64]) -> (f64, Vec<f64>) {
    let (mut value, mut gains) = (0.0, vec![0.0; rows.len()]);
    for gang in gangs {
        let of = &modes[*gang].all;
        let mut shares = vec![0.0; of.len()];
        for (row, weight) in rows.iter().zip(weights).filter(|(_, weight)| **weight > TINY) {
            shares.iter_mut().zip(&row.shares[*gang]).for_each(|(share, own)| *share += weight * *own as f64);
        }
        let areas = of.iter().zip(shares).map(|(mode, share)| share * mode.seconds as f64);
        let Some((mode, area)) = areas.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        value += area;
        let seconds = of[mode].seconds as f64;
        gains.iter_mut().zip(rows).for_each(|(gain, row)| *gain += row.shares[*gang][mode] as f64 * seconds);
    }
    (value, gains)
}
