//! The judgement: the verdict held against the judge's own account.
//!
//! `docs/fates.md` says what each word of a verdict claims. Here each claim is held against the ledger, the medium and
//! what the application was handed. Where the three leave several words possible, each of them will do; where they show
//! something, nothing else will.

mod blocks;
mod causes;
mod evidence;
mod fates;
mod files;
mod medium;
mod numbers;

use crate::account::Account;
use crate::conduct::Conducted;
use crate::told::Told;
use evidence::Evidence;

/// What is wrong with `told`, the verdict on a trial; nothing, if all is well.
pub fn judge(conducted: &Conducted, told: &Told) -> Vec<String> {
    let account = Account::of(&conducted.events, &conducted.contents);
    let evidence = Evidence::new(conducted, &account);
    let mut wrong = Vec::new();
    numbers::judge(&evidence, told, &mut wrong);
    if conducted.is_of_files() {
        files::judge(&evidence, told, &mut wrong);
        return wrong;
    }
    medium::judge(&evidence, &mut wrong);
    blocks::judge(&evidence, told, &mut wrong);
    causes::judge(&evidence, told, &mut wrong);
    fates::judge(&evidence, told, &mut wrong);
    wrong
}
