//! Whole-number expressions of launch directives: `ceil(m,4)`, `min(n,1024)`, `d<=256&&d%8==0`. Names are looked up by the
//! caller; nothing here knows what they mean.

/// The value of `text`; `Err` says what is wrong with it.
pub fn evaluate(text: &str, names: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
    let mut p = Parser { text, at: 0, names };
    let value = p.choice()?;
    p.blank();
    if p.at < text.len() {
        return Err(format!("`{text}`: cannot read `{}`", &text[p.at..]));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    names: &'a dyn Fn(&str) -> Option<i64>,
}

/// Operators by precedence, loosest first; of two with one beginning the longer stands first.
const LEVELS: &[&[&str]] = &[&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

impl Parser<'_> {
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
        let yes = self.choice()?;
        if !self.eat(":") {
            return self.wrong("a `?` without its `:`");
        }
        let no = self.choice()?;
        Ok(if condition != 0 { yes } else { no })
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
            let a = self.choice()?;
            let b = if self.eat(",") { self.choice()? } else { return self.wrong("functions take two values") };
            if !self.eat(")") {
                return self.wrong("a parenthesis is not closed");
            }
            return match word {
                "min" => Ok(a.min(b)),
                "max" => Ok(a.max(b)),
                "ceil" if b > 0 => Ok(a.div_euclid(b) + i64::from(a.rem_euclid(b) > 0)),
                "ceil" => self.wrong(&format!("ceil({a},{b}) has no value")),
                _ => self.wrong(&format!("there is no function {word}; ceil, min and max exist")),
            };
        }
        if word.is_empty() {
            return self.wrong("a value is missing");
        }
        (self.names)(word).map_or_else(|| self.wrong(&format!("there is no {word} here")), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    fn value(text: &str) -> Result<i64, String> {
        evaluate(text, &|name| match name {
            "m" => Some(7),
            "x.rows" => Some(100),
            _ => None,
        })
    }

    #[test]
    fn arithmetic() {
        assert_eq!(value("1+2*3-4/2"), Ok(5));
        assert_eq!(value("ceil(m,4)*2"), Ok(4));
        assert_eq!(value("min(x.rows, 3) + max(m,8) % 5"), Ok(6));
        assert_eq!(value("m<=7&&!(m==3)?-m:0"), Ok(-7));
        assert_eq!(value("m>7||m>=7"), Ok(1));
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
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
