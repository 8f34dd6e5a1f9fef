//! The lines `// kmark: tune NAME = E, E, E [when E]`: values that nobody can compute, and that are tried. A variant of a file
//! has one of each. Which one is the best of a case is for those to find out who have a gate and a clock; here is what there
//! is to choose from, and the file with a choice made.

use super::directives::{Directives, Names};
use super::kernel_line::NOT_COMPILED;
use super::machine::Machine;
use super::program::KernelFile;
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::spelling::unknown;
use kmark_core::tensor::TensorSpec;
use std::borrow::Cow;

/// More variants than this nobody waits for; so many are looked at to find them.
const MOST: usize = 64;
const MOST_TO_SEE: usize = 4096;

/// A value for each name.
pub type Choice = Vec<(String, i64)>;

/// As it is typed behind a `#`: `BN=128,STAGES=4`.
pub fn word(choice: &Choice) -> String {
    choice.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

pub fn parse(word: &str) -> Result<Choice, String> {
    let one = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_string(), value.trim().parse().ok()?))
    };
    let how = || format!("`{word}`: write it like #BN=128,STAGES=4");
    word.split(',').map(|part| one(part).ok_or_else(how)).collect()
}

impl Directives {
    /// Whether something is left to choose.
    fn is_open(&self) -> bool {
        self.lets.iter().any(|l| !l.values.is_empty() && !self.chosen.iter().any(|(name, _)| *name == l.name))
    }

    /// `Err` says which of the chosen values the file does not offer here.
    pub(super) fn check_choice(&self, names: &Names) -> Result<(), String> {
        let tuned = || self.lets.iter().filter(|l| !l.values.is_empty());
        for (name, value) in &self.chosen {
            let Some(tune) = tuned().find(|l| l.name == *name) else {
                return Err(unknown("tuned value", name, tuned().map(|l| l.name.as_str())));
            };
            let offered = tune.values.iter().map(|v| names.value(v)).collect::<Result<Vec<_>, _>>()?;
            if !offered.contains(value) {
                let all: Vec<String> = offered.iter().map(i64::to_string).collect();
                return Err(format!("{name} is one of {} here, not {value}", all.join(", ")));
            }
        }
        for tune in tuned() {
            if let Some(condition) = &tune.when
                && names.value(condition)? == 0
            {
                return Err(format!("{} is tuned when {condition}", tune.name));
            }
        }
        Ok(())
    }

    fn with(&self, chosen: Choice) -> Directives {
        Directives { chosen, ..self.clone() }
    }

    /// All that can be chosen in a case, in the order of the file: the first is what runs where nobody tunes.
    fn choices(&self, op: &Op, case: &Case, tensors: &[TensorSpec], machine: &Machine) -> Result<Vec<Choice>, String> {
        let mut all = vec![self.chosen.clone()];
        for tune in self.lets.iter().filter(|l| !l.values.is_empty()) {
            let mut more: Vec<Choice> = Vec::new();
            for chosen in all {
                if chosen.iter().any(|(name, _)| *name == tune.name) {
                    more.push(chosen);
                    continue;
                }
                let file = self.with(chosen.clone());
                let names = file.names(op, case, tensors, machine)?;
                for value in &tune.values {
                    let next = [&chosen[..], &[(tune.name.clone(), names.value(value)?)]].concat();
                    if !more.contains(&next) {
                        more.push(next);
                    }
                }
            }
            if more.len() > MOST_TO_SEE {
                return Err(format!(
                    "tune {}: more than {MOST_TO_SEE} variants, before `when` leaves any out",
                    tune.name
                ));
            }
            all = more;
        }
        let mut refused = None;
        all.retain(|chosen| match self.with(chosen.clone()).fits(op, case, tensors, machine) {
            Ok(()) => true,
            Err(why) => {
                refused.get_or_insert(why);
                false
            }
        });
        match refused {
            Some(why) if all.is_empty() => Err(why),
            _ if all.len() > MOST => Err(format!("tune: {} variants, more than {MOST}", all.len())),
            _ => Ok(all),
        }
    }

    /// `Err` says why the file, as it is, does not claim the case on a GPU.
    pub(super) fn fits(&self, op: &Op, case: &Case, tensors: &[TensorSpec], machine: &Machine) -> Result<(), String> {
        let names = self.names(op, case, tensors, machine)?;
        self.claims(&names)?;
        self.kernels.iter().try_for_each(|k| k.shape(&names, NOT_COMPILED).map(drop))
    }
}

impl<'a> KernelFile<'a> {
    /// What there is to try in a case on a GPU, as words; nothing if there is nothing to choose.
    pub fn variants(&self, op: &Op, case: &Case, machine: &Machine) -> Result<Vec<String>, String> {
        if !self.directives.is_open() {
            return Ok(Vec::new());
        }
        let choices = self.directives.choices(op, case, &op.tensors(case), machine)?;
        Ok(choices.iter().map(word).collect())
    }

    /// With every value chosen: as it was asked for, or the first that the file offers.
    pub(super) fn settled(&self, op: &Op, case: &Case, machine: &Machine) -> Result<Cow<'_, KernelFile<'a>>, String> {
        if !self.directives.is_open() {
            return Ok(Cow::Borrowed(self));
        }
        let mut choices = self.directives.choices(op, case, &op.tensors(case), machine)?;
        Ok(Cow::Owned(KernelFile { directives: self.directives.with(choices.swap_remove(0)), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_word() {
        let choice = parse("BN=128,STAGES=-4").unwrap();
        assert_eq!((choice.len(), word(&choice).as_str()), (2, "BN=128,STAGES=-4"));
        assert!(parse("BN").unwrap_err().contains("write it like #BN=128"));
        assert!(parse("BN=x").is_err());
    }
}
