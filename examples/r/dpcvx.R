# dpcvx from R: fit, tidy table, predictions. Base R alone; the command line of dpcvx does the work.
#
#   source("dpcvx.R")
#   model <- dpcvx_fit(people, log(wage) ~ age + region + age:sex, schema = "people.toml", epsilon = 1)
#   tidy(model)
#   predict(model, new_people)

dpcvx_command <- function() {
  # The program: Sys.setenv(DPCVX = "/path/to/dpcvx"), or dpcvx on the PATH.
  Sys.getenv("DPCVX", unset = "dpcvx")
}

run_dpcvx <- function(...) {
  said <- tempfile()
  on.exit(unlink(said))
  output <- suppressWarnings(system2(dpcvx_command(), shQuote(c(...)), stdout = TRUE, stderr = said))
  status <- attr(output, "status")
  words <- grep(" \\([0-9]+ s\\)$", readLines(said), value = TRUE, invert = TRUE)  # without the progress
  text <- paste(words, collapse = "\n")
  if (!is.null(status) && status != 0) stop(text, call. = FALSE)
  if (length(words)) warning(text, call. = FALSE)
  output
}

# The form of files that write.csv writes, whatever the schema says of others; a cell may have line breaks in it.
csv_form <- c("--sep", ",", "--decimal", ".", "--encoding", "utf-8", "--quoted-line-breaks")

# Fit a private model of a data frame, or of a table in a file.
# data: data frame, or path of a CSV, Parquet, Stata, SAS, SPSS or Excel file
# formula: R formula; its functions and interactions are those of the page "Formulas"
# schema: path of a schema file, TOML, with public bounds and levels
# model, epsilon, uncertainty: as for dpcvx fit; options: further options, such as c("--person", "id")
dpcvx_fit <- function(data, formula, schema, epsilon, model = "linear", uncertainty = 0.2,
                      out = tempfile(fileext = ".json"), options = character()) {
  if (is.data.frame(data)) {
    path <- tempfile(fileext = ".csv")
    on.exit(unlink(path))
    utils::write.csv(data, path, row.names = FALSE, na = "")
    data <- path
    options <- c(csv_form, options)
  }
  text <- paste(deparse(formula, width.cutoff = 500L), collapse = " ")
  words <- run_dpcvx("fit", data, "--formula", text, "--bounds", schema, "--model", model,
                     "--epsilon", format(epsilon, digits = 17), "--uncertainty", format(uncertainty, digits = 17),
                     "--out", out, options)
  structure(list(path = out, formula = formula, words = words), class = "dpcvx")
}

# Open a model file that dpcvx fit has written.
dpcvx_open <- function(path) structure(list(path = path), class = "dpcvx")

tidy <- function(x, ...) UseMethod("tidy")

# The table of coefficients, with the column names of broom.
tidy.dpcvx <- function(x, level = 0.95, ...) {
  path <- tempfile(fileext = ".csv")
  on.exit(unlink(path))
  run_dpcvx("show", x$path, "--format", "csv", "--level", format(level, digits = 17), "--out", path)
  table <- utils::read.csv(path, check.names = FALSE, stringsAsFactors = FALSE)
  names(table)[1] <- "term"
  known <- c(coef = "estimate", "std err" = "std.error", z = "statistic", "P>|z|" = "p.value",
             "noise share" = "noise.share")
  found <- names(table) %in% names(known)
  names(table)[found] <- known[names(table)[found]]
  names(table)[startsWith(names(table), "[")] <- "conf.low"
  names(table)[endsWith(names(table), "]")] <- "conf.high"
  table
}

print.dpcvx <- function(x, ...) {
  cat(run_dpcvx("show", x$path), sep = "\n")
  invisible(x)
}

summary.dpcvx <- function(object, ...) tidy(object, ...)

coef.dpcvx <- function(object, ...) {
  table <- tidy(object)
  stats::setNames(table$estimate, table$term)
}

predict.dpcvx <- function(object, newdata, ...) {
  path <- tempfile(fileext = ".csv")
  out <- tempfile(fileext = ".csv")
  on.exit(unlink(c(path, out)))
  utils::write.csv(newdata, path, row.names = FALSE, na = "")
  run_dpcvx("predict", object$path, path, csv_form, "--out", out)
  utils::read.csv(out, check.names = FALSE)
}
