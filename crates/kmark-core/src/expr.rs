//! Whole-number expressions: `ceil(m,4)`, `min(n,1024)`, `d<=256&&d%8==0`. Names and functions are
//! looked up by the caller; nothing here knows what they mean.

/// What an expression may use.
pub trait Scope {
    fn name(&self, name: &str) -> Option<i64>;
    /// Parameters and body of a function.
    fn function(&self, name: &str) -> Option<(&[String], &str)>;
}

/// The value of `text`; `Err` says what is wrong with it.
pub fn evaluate(text: &str, scope: &dyn Scope) -> Result<i64, String> {
    within(text, scope, &[], 0)
}

/// With values for the parameters of a function that was called from `depth` others.
fn within(text: &str, scope: &dyn Scope, given: &[(&str, i64)], depth: usize) -> Result<i64, String> {
    let mut p = Parser { text, at: 0, scope, given: given.to_vec(), depth, unused: false };
    let value = p.choice()?;
    p.blank();
    if p.at < text.len() {
        return Err(format!("`{text}`: cannot read `{}`", &text[p.at..]));
    }
    Ok(value)
}

/// Whether a word can be a name.
pub fn is_name(word: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    word.starts_with(letter) && word.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Functions that call each other end here.
const DEEPEST: usize = 16;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    scope: &'a dyn Scope,
    given: Vec<(&'a str, i64)>,
    depth: usize,
    /// In the branch of a choice that is not taken: it need not have a value.
    unused: bool,
}

/// Operators by precedence, loosest first; of two with one beginning the longer stands first.
const LEVELS: &[&[&str]] = &[&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

impl<'a> Parser<'a> {
    fn blank(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }

    fn eat(&mut self, word: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn wrong<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("`{}`: {what}", self.text))
    }

    fn choice(&mut self) -> Result<i64, String> {
        let condition = self.level(0)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let yes = self.branch(condition != 0)?;
        if !self.eat(":") {
            return self.wrong("a `?` without its `:`");
        }
        let no = self.branch(condition == 0)?;
        Ok(if condition != 0 { yes } else { no })
    }

    fn branch(&mut self, taken: bool) -> Result<i64, String> {
        let before = self.unused;
        self.unused |= !taken;
        let value = self.choice();
        self.unused = before;
        value
    }

    fn level(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some(op) = operators.iter().find(|op| self.eat(op)) {
            let right = self.level(level + 1)?;
            left = self.apply(op, left, right)?;
        }
        Ok(left)
    }

    fn apply(&self, op: &str, a: i64, b: i64) -> Result<i64, String> {
        let value = match op {
            "||" => Some(i64::from(a != 0 || b != 0)),
            "&&" => Some(i64::from(a != 0 && b != 0)),
            "==" => Some(i64::from(a == b)),
            "!=" => Some(i64::from(a != b)),
            "<=" => Some(i64::from(a <= b)),
            ">=" => Some(i64::from(a >= b)),
            "<" => Some(i64::from(a < b)),
            ">" => Some(i64::from(a > b)),
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "/" => a.checked_div(b),
            _ => a.checked_rem(b),
        };
        let value = value.or(self.unused.then_some(0));
        value.map_or_else(|| self.wrong(&format!("{a} {op} {b} has no value")), Ok)
    }

    fn unary(&mut self) -> Result<i64, String> {
        if self.eat("-") {
            return Ok(-self.unary()?);
        }
        if self.eat("!") {
            return Ok(i64::from(self.unary()? == 0));
        }
        if self.eat("(") {
            let value = self.choice()?;
            return if self.eat(")") { Ok(value) } else { self.wrong("a parenthesis is not closed") };
        }
        self.blank();
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
        let word = &rest[..len];
        self.at += len;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().or_else(|_| self.wrong(&format!("{word} is no whole number")));
        }
        if self.eat("(") {
            return if word == "least" { self.least() } else { self.call(word) };
        }
        if word.is_empty() {
            return self.wrong("a value is missing");
        }
        let given = self.given.iter().rev().find(|(name, _)| *name == word).map(|(_, value)| *value);
        given.or_else(|| self.scope.name(word)).map_or_else(|| self.wrong(&format!("there is no {word} here")), Ok)
    }

    /// Behind the parenthesis that opens.
    fn call(&mut self, word: &str) -> Result<i64, String> {
        let mut values = vec![self.choice()?];
        while self.eat(",") {
            values.push(self.choice()?);
        }
        if !self.eat(")") {
            return self.wrong("a parenthesis is not closed");
        }
        if self.unused {
            return Ok(0);
        }
        match (word, &values[..]) {
            ("min", [a, b]) => return Ok(*a.min(b)),
            ("max", [a, b]) => return Ok(*a.max(b)),
            ("ceil", [a, b]) if *b > 0 => return Ok(a.div_euclid(*b) + i64::from(a.rem_euclid(*b) > 0)),
            ("ceil", [a, b]) => return self.wrong(&format!("ceil({a},{b}) has no value")),
            ("min" | "max" | "ceil", _) => return self.wrong(&format!("{word} takes two values")),
            _ => {}
        }
        let Some((parameters, body)) = self.scope.function(word) else {
            return self.wrong(&format!("there is no function {word}; ceil, min, max and least exist"));
        };
        if parameters.len() != values.len() {
            return self.wrong(&format!("{word} takes {} values", parameters.len()));
        }
        let given: Vec<(&str, i64)> = parameters.iter().map(String::as_str).zip(values).collect();
        if self.depth == DEEPEST {
            return self.wrong(&format!("{word} calls itself"));
        }
        within(body, self.scope, &given, self.depth + 1)
    }

    /// `least(NAME, from, to, step, expression)`: the value of NAME for which the expression is least, the last of several.
    fn least(&mut self) -> Result<i64, String> {
        self.blank();
        let rest = &self.text[self.at..];
        let name = &rest[..rest.find(',').unwrap_or(0)];
        if !is_name(name.trim_end()) {
            return self.wrong("least begins with the name of its variable");
        }
        self.at += name.len();
        let mut bounds = [0; 3];
        for bound in &mut bounds {
            *bound =
                if self.eat(",") { self.choice()? } else { return self.wrong("least(NAME,from,to,step,expression)") };
        }
        let [from, to, step] = bounds;
        if !self.eat(",") || step < 1 || to < from || (to - from) / step > 1000 {
            return self.wrong("least(NAME,from,to,step,expression) tries at most 1000 values");
        }
        let (start, mut best) = (self.at, None);
        for value in (from..=to).step_by(step as usize) {
            self.at = start;
            self.given.push((name.trim_end(), value));
            let result = self.choice();
            self.given.pop();
            let result = result?;
            if best.is_none_or(|(least, _)| result <= least) {
                best = Some((result, value));
            }
        }
        if !self.eat(")") {
            return self.wrong("a parenthesis is not closed");
        }
        Ok(best.map_or(from, |(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::{Scope, evaluate};

    struct Known(Vec<String>);

    impl Scope for Known {
        fn name(&self, name: &str) -> Option<i64> {
            [("m", 7), ("x.rows", 100)].iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        }
        fn function(&self, name: &str) -> Option<(&[String], &str)> {
            let body = if name == "cost" { "ceil(m,W)*(W+B)" } else { "again(W,B)" };
            ["cost", "again"].contains(&name).then_some((&self.0, body))
        }
    }

    fn value(text: &str) -> Result<i64, String> {
        evaluate(text, &Known(vec!["W".into(), "B".into()]))
    }

    #[test]
    fn arithmetic() {
        assert_eq!(value("1+2*3-4/2"), Ok(5));
        assert_eq!(value("ceil(m,4)*2"), Ok(4));
        assert_eq!(value("min(x.rows, 3) + max(m,8) % 5"), Ok(6));
        assert_eq!(value("m<=7&&!(m==3)?-m:0"), Ok(-7));
        assert_eq!(value("m>7||m>=7"), Ok(1));
        assert_eq!(value("m==7?1:1/0"), Ok(1), "only what is chosen needs a value");
        assert_eq!(value("m!=7?cost(0,1):ceil(1,1)"), Ok(1));
        assert_eq!(value("cost(2, 1) + 1"), Ok(13));
        assert_eq!(value("least(T, 1, 8, 1, cost(T, 1)) * 10"), Ok(70));
        assert_eq!(value("least(T,4,2*m,2,(T-9)*(T-9))"), Ok(10), "the last of several");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("rows", "there is no rows here"),
            ("1/0", "1 / 0 has no value"),
            ("9223372036854775807+1", "has no value"),
            ("(1", "not closed"),
            ("floor(1,2)", "no function floor"),
            ("1 2", "cannot read `2`"),
            ("", "a value is missing"),
            ("12q", "no whole number"),
            ("ceil(1,0)", "has no value"),
            ("ceil(1)", "takes two values"),
            ("cost(1)", "takes 2 values"),
            ("least(T,1,2)", "least(NAME,from,to,step,expression)"),
            ("least(1,1,2,1,3)", "begins with the name"),
            ("W", "there is no W here"),
            ("again(1,2)", "again calls itself"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
